"""The W&B runs of this process, as its helper process is told of them."""

from __future__ import annotations

import pickle

from references import plain
from references.messages import RunTicket
from references.wandb_client import environment, is_over


class RunTickets:
    """One ticket for each run; the runs are kept, to be asked later. Used by one thread, ``is_over`` by any."""

    def __init__(self) -> None:
        """Know no run."""
        self._known: list[tuple[object, RunTicket]] = []

    def of(self, run: object | None) -> RunTicket | None:
        """Return the ticket of a run; None for none."""
        if run is None:
            return None
        for known, ticket in self._known:
            if known is run:
                return ticket
        made = _make(run, len(self._known))
        self._known.append((run, made))
        return made

    def is_over(self, number: int) -> bool:
        """Say whether a run was finished."""
        return is_over(self._known[number][0])


def _make(run: object, number: int) -> RunTicket:
    id_, entity, project = (plain.text(plain.field(run, name)) or "" for name in ("id", "entity", "project"))
    is_disabled = plain.field(run, "disabled") is True
    return RunTicket(
        number=number,
        id=id_,
        entity=entity,
        project=project,
        offline=plain.field(run, "offline") is True,
        disabled=is_disabled,
        pickled=b"" if is_disabled else _pickled(run),
        environment={} if is_disabled else environment(run),
    )


def _pickled(run: object) -> bytes:
    try:
        return pickle.dumps(run)
    except Exception:  # noqa: BLE001 - a run that is none of W&B's may raise anything
        return b""
