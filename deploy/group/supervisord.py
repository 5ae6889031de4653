"""``python -m deploy.group.supervisord``: supervisord whose children miss no signal.

Until a child becomes its program, it has supervisord's handlers, and what reaches it in that moment would be lost: a
group that is stopped while a process is being started again would wait until that process is killed.
"""

from __future__ import annotations

import signal

from supervisor import supervisord
from supervisor.options import ServerOptions

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)


class Options(ServerOptions):
    """supervisord's system interface with blocked signals around fork."""

    def fork(self) -> int:
        """Fork with signals blocked until the child has removed the inherited handlers."""
        former = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            pid: int = super().fork()
            if pid == 0:
                for number in HANDLED:
                    signal.signal(number, signal.SIG_DFL)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)


if __name__ == "__main__":
    supervisord.ServerOptions = Options
    supervisord.main()
