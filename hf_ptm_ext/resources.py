"""Where the package's data folders are: inside an installed wheel, or at the top of a checkout."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# name -> (folder in a wheel, folder in a checkout)
FOLDERS = {
    "model_cards": (PACKAGE / "_resources" / "model_cards", PACKAGE.parent / "model_cards"),
    "configs": (PACKAGE / "_resources" / "configs", PACKAGE.parent / "scripts" / "configs"),
    "decoding": (PACKAGE / "_resources" / "decoding", PACKAGE.parent / "scripts" / "decoding"),
}


def resource_folder(name: str) -> Path:
    """Find a data folder.

    Args:
        name: `"model_cards"` (card templates), `"configs"` (recipes) or `"decoding"` (decoding presets).

    Returns:
        The existing folder.

    Raises:
        ValueError: there is no resource of that name.
        FileNotFoundError: the installation lacks the folder.

    Example:
        >>> resource_folder("model_cards").is_dir()
        True
    """
    if name not in FOLDERS:
        raise ValueError(f"`name` must be one of {', '.join(FOLDERS)}, got {name!r}.")
    for folder in FOLDERS[name]:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"The installation of hf_ptm_ext has no {name}: looked in {FOLDERS[name]}. Reinstall it.")


def resource(name: str, file_name: str) -> Path:
    """Find a file of a data folder.

    Args:
        name: the folder, as in `resource_folder`.
        file_name: the file in it, without a path.

    Returns:
        The existing file.

    Raises:
        ValueError: `file_name` has a path in it.
        FileNotFoundError: there is no such file; the message lists those there are.

    Example:
        >>> resource("model_cards", "spanbert.md").name
        'spanbert.md'
    """
    if Path(file_name).name != file_name:
        raise ValueError(f"`file_name` must be a bare file name, got {file_name!r}.")
    folder = resource_folder(name)
    path = folder / file_name
    if not path.is_file():
        names = ", ".join(sorted(found.name for found in folder.iterdir() if found.is_file()))
        raise FileNotFoundError(f"There is no {file_name} among the {name}; there are: {names or 'none'}.")
    return path
