"""`hf-ptm-ext finetune-typing`: fine-tune an encoder for entity typing, with entities and without them, by seeds."""

from .finetune_relations import GROUPS, MentionJob, parse

__all__ = ["GROUPS", "run"]


def run(arguments: list[str]) -> int:
    """Run the job."""
    MentionJob("typing", *parse(arguments, "finetune-typing")).run()
    return 0
