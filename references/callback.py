"""The training callback: the step indexer as SkyRL's trainers call it."""

from __future__ import annotations

from typing import Any

from references import plain
from references.indexing import StepIndexer


class SkycapRecordIndex(StepIndexer):
    """Indexes each training step, and each evaluation where that is enabled, in W&B.

    A SkyRL callback by its shape, without importing SkyRL. The batch's trajectory ids come as
    ``callback_input.trajectory_ids``, which ``references.skyrl`` adds to trainers that do not hand them over; its loss
    masks are ``callback_input.batch["loss_mask"]``. The run is that of the trainer's tracker; with another tracker than
    W&B's the entries are only forgotten.
    """

    def on_train_start(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_epoch_start(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_step_start(self, trainer: object, callback_input: object, control: object) -> None:  # noqa: ARG002
        """Begin a step, unless dynamic sampling goes on from the epoch before: its batch is not dropped."""
        if plain.field(trainer, "dynamic_sampling_state") is None:
            self.step_start()

    def on_step_end(self, trainer: object, callback_input: object, control: object) -> None:  # noqa: ARG002
        """End a step with what the trainer's batch says; with another tracker than W&B only forget its entries."""
        if not _logs_to_wandb(trainer):
            self._records.take("train")
            return
        self.step_end(
            plain.field(callback_input, "global_step"),
            trajectory_ids=plain.field(callback_input, "trajectory_ids"),
            loss_masks=plain.field(plain.field(callback_input, "batch"), "loss_mask"),
            run=_wandb_run(trainer),
        )

    def on_eval_start(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_eval_end(self, trainer: object, callback_input: object, control: object) -> None:  # noqa: ARG002
        """End an evaluation; with another tracker than W&B only forget its entries."""
        if not _logs_to_wandb(trainer):
            self._records.take("eval")
            return
        self.eval_end(plain.field(callback_input, "global_step"), run=_wandb_run(trainer))

    def on_save(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_log(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_epoch_end(self, trainer: object, callback_input: object, control: object) -> None:
        """Do nothing."""

    def on_train_end(self, trainer: object, callback_input: object, control: object) -> None:  # noqa: ARG002
        """End the training; the tracker finishes the W&B run right after this."""
        self.train_end()


def _logs_to_wandb(trainer: object) -> bool:
    return bool(plain.field(plain.field(trainer, "tracker"), "backend") == "wandb")


def _wandb_run(trainer: object) -> Any:  # noqa: ANN401 - W&B's own class, not imported here
    return plain.field(plain.field(plain.field(trainer, "tracker"), "logger"), "run")
