"""Two processes, in one of which a loss is NaN; then the run resumes. Prints what each process says.

python -m tests.trainers.one_bad_process FOLDER
"""

import sys

from transformers import TrainerCallback

from hf_ptm_ext.trainers import NotFinite, last_complete_checkpoint
from tests.processes import leave_the_others
from tests.trainers.every_trainer import BUILDERS


class SpoilHere(TrainerCallback):
    """The second process's third update has a bias that makes its loss NaN; nothing of it is in the gradients."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 2 and args.process_index == 1:
            loss = model.forward

            def forward(*inputs, **named):
                output = loss(*inputs, **named)
                output["loss"] = output["loss"] + float("nan")
                return output

            model.forward = forward


def tell(line):
    """In one write, since the two processes share a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trainer = BUILDERS["plain"](sys.argv[1], callbacks=[SpoilHere()], ddp_find_unused_parameters=False)
    try:
        trainer.train()
    except NotFinite as error:
        tell(f"STOPPED {trainer.args.process_index} {error}")
    trainer.accelerator.wait_for_everyone()
    again = BUILDERS["plain"](sys.argv[1])
    again.train(resume_from_checkpoint=str(last_complete_checkpoint(sys.argv[1])))
    tell(f"RESUMED {again.args.process_index} {again.state.global_step}")
    del trainer, again
    leave_the_others()
