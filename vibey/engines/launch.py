"""Launch: what a holder asks its supervisor to start, how that crosses the socket, and the start itself.

The block is its length in digits, a line end, and NUL-separated fields: no argument, variable or path can
hold a NUL, so nothing needs quoting, and neither side a parser. Loaded by the supervisor as a plain file, so
it imports next to nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
else:
    import _signal as signal  # the public module costs 4 ms more to import, for enum names nobody here needs

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
# What a parent ignores stays ignored across exec, and Python ignores some of these.
DEFAULTED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGXFSZ,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Launch:
    """A program with its arguments, environment, folder and input, and the lease it starts under.

    `lease_end` and `lease_end_boot` are nanoseconds of the monotonic clock and of the one that also counts
    sleep.
    """

    def __init__(  # noqa: PLR0913  (one place builds it, by keyword)
        self,
        *,
        holder: int,
        lease_end: int,
        lease_end_boot: int,
        directory: str,
        stdin: str,
        program: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self.holder = holder
        self.lease_end = lease_end
        self.lease_end_boot = lease_end_boot
        self.directory = directory
        self.stdin = stdin
        self.program = program
        self.argv = list(argv)
        self.environment = dict(environment)

    def packed(self) -> bytes:
        """The block; ValueError if a field holds a NUL."""
        numbers = (self.holder, self.lease_end, self.lease_end_boot, len(self.argv))
        pairs = [f"{name}={value}" for name, value in self.environment.items()]
        texts = (self.directory, self.stdin, self.program, *self.argv, *pairs)
        if any("\0" in text for text in texts):
            raise ValueError("an argument or variable holds a NUL character")
        block = b"\0".join(os.fsencode(text) for text in (*map(str, numbers), *texts))
        return b"%d\n%s" % (len(block), block)

    @classmethod
    def unpacked(cls, block: bytes) -> Launch:
        """The launch a block (without its length) describes."""
        fields = [os.fsdecode(field) for field in block.split(b"\0")]
        holder, lease_end, lease_end_boot, count = (int(field) for field in fields[:4])
        rest = 7 + count
        return cls(
            holder=holder,
            lease_end=lease_end,
            lease_end_boot=lease_end_boot,
            directory=fields[4],
            stdin=fields[5],
            program=fields[6],
            argv=fields[7:rest],
            environment={name: value for name, _, value in (pair.partition("=") for pair in fields[rest:])},
        )


def receive(control: int) -> Launch | None:
    """The launch read from a blocking socket, before anything else; None if the sender went away."""
    head = b""
    while not head.endswith(b"\n"):
        digit = os.read(control, 1)
        if not digit:
            return None
        head += digit
    left, parts = int(head), []
    while left:
        part = os.read(control, left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return Launch.unpacked(b"".join(parts))


class Kernel:
    """The two process settings of Linux that have no other door in Python than ctypes."""

    def __init__(self) -> None:
        self._prctl: Callable[..., int] | None = None
        try:
            import ctypes

            prctl = ctypes.CDLL(None).prctl
            prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
        except (ImportError, AttributeError, OSError):
            return  # another kernel: the tree's group is all there is to hold on to
        self._prctl = prctl

    def adopt_orphans(self) -> bool:
        """Become the parent of every orphan below us; False where the kernel cannot."""
        return self._prctl is not None and self._prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

    def adopts_orphans(self) -> bool:
        """Whether this process has become that."""
        if self._prctl is None:
            return False
        import ctypes

        answer = ctypes.c_int(0)
        return self._prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer), 0, 0, 0) == 0 and answer.value == 1

    def die_with_parent(self) -> None:
        """Have the kernel kill this process when its parent dies."""
        if self._prctl is not None:
            self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start_child(order: Launch, kernel: Kernel, output: int) -> tuple[int, int]:
    """Start the program in a session of its own; its number, or 0 and the errno that kept it away."""
    supervisor = os.getpid()
    news, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become(order, kernel, output, supervisor)
        except OSError as error:
            os.write(tell, str(error.errno or 1).encode())
        finally:
            os._exit(127)
    os.close(tell)
    # The pipe closes by itself when the program takes over.
    told = os.read(news, 16)
    os.close(news)
    if told:
        os.waitpid(child, 0)
        return 0, int(told)
    return child, 0


def _become(order: Launch, kernel: Kernel, output: int, supervisor: int) -> None:
    os.setsid()
    kernel.die_with_parent()
    if os.getppid() != supervisor:
        return  # it died before the kernel knew that we want to follow
    for signum in DEFAULTED:
        signal.signal(signum, signal.SIG_DFL)
    source = os.open(order.stdin, os.O_RDONLY)
    for target, descriptor in ((0, source), (1, output), (2, output)):
        os.dup2(descriptor, target)
    os.chdir(order.directory)
    os.execve(order.program, order.argv, order.environment)  # noqa: S606
