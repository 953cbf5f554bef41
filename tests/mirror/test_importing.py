"""A fork at any moment leaves a child that can import what its parent was importing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

SCRIPT = dedent("""
    import os, sys, threading
    from mirror.importing import importing

    def load():
        with importing:
            import slow_client

    begun, go_on = threading.Event(), threading.Event()
    sys.slow = begun, go_on
    thread = threading.Thread(target=load)
    thread.start()
    begun.wait()
    threading.Timer(0.2, go_on.set).start()  # the fork, below, waits for it
    child = os.fork()
    if not child:
        load()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    thread.join()
""")


def test_a_child_imports_what_another_thread_was_importing_when_it_was_forked(tmp_path: Path) -> None:
    """The fork waits for that: else the child would wait for ever, for a thread that it does not have."""
    (tmp_path / "slow_client.py").write_text("import sys\nsys.slow[0].set()\nsys.slow[1].wait()\n")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT]
    root = str(Path(__file__).parents[2])
    subprocess.run(command, cwd=root, env={"PYTHONPATH": f"{root}:{tmp_path}"}, timeout=60, check=True)  # noqa: S603 - our own code
