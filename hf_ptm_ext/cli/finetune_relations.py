"""`hf-ptm-ext finetune-relations`: fine-tune an encoder for relation classification, with and without entities."""

from .knowledge_arguments import parse
from .knowledge_finetuning import finetune


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `finetune-relations`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    finetune("relation", *parse(arguments, "finetune-relations"))
    return 0


__all__ = ["run"]
