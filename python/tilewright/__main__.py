"""The command `tilewright`: ``python -m tilewright run softmax.tile``."""

import signal
import sys

from ._core import command


def main() -> int:
    """Runs the command with this process's words; its exit code."""
    # The command ends at once, as a program does: no line of Python runs meanwhile that could see the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    return command(["tilewright", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
