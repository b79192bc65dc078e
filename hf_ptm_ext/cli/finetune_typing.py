"""`hf-ptm-ext finetune-typing`: fine-tune an encoder for entity typing, with and without entities."""

from .knowledge_arguments import parse
from .knowledge_finetuning import finetune


def run(arguments: list[str]) -> int:
    """Run the job.

    Args:
        arguments: the command line after `finetune-typing`.

    Returns:
        0.

    Raises:
        ValueError: arguments or data are wrong; the message says which and what to do.
    """
    finetune("typing", *parse(arguments, "finetune-typing"))
    return 0


__all__ = ["run"]
