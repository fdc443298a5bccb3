"""One queue from PyPI at work, for scripts/bench: obeys "fill N", "put N", "cycle N" on standard input, one a line, and
answers each with the seconds it took. What is done without a limit on the queue's length, the quickest each can do."""

import importlib.metadata
import sys
import time

PAYLOAD = "sixty-four bytes of payload, which is neither long nor very short"
BATCH = 1000


class LocalQueue:
    version = "1.4.1"

    def __init__(self, folder):
        from localqueue import DeliveryPolicy, DurabilityMode, SimpleQueue

        # No lease runs out while this runs.
        delivery = DeliveryPolicy(lease_seconds=86400)
        self.queue = SimpleQueue(folder, delivery=delivery, durability=DurabilityMode.DURABLE)

    def settings(self):
        found = self.queue.diagnostics()
        return found.journal_mode, found.synchronous

    def fill(self, count):
        for begin in range(0, count, BATCH):
            self.queue.put_many([PAYLOAD] * min(BATCH, count - begin))

    def waiting(self):
        return self.queue.stats()["ready"]

    def put(self):
        self.queue.put(PAYLOAD)

    def cycle(self):
        # get_nowait() would commit once more.
        self.queue.ack(self.queue.get(timeout=0))


class LiteQueue:
    version = "0.9"

    def __init__(self, folder):
        from litequeue import LiteQueue

        self.queue = LiteQueue(f"{folder}/litequeue.db")
        # The constructor chooses NORMAL, which syncs no commit.
        self.queue.conn.execute("PRAGMA synchronous = FULL")

    def settings(self):
        read = self.queue.conn.execute
        return read("PRAGMA journal_mode").fetchone()[0], read("PRAGMA synchronous").fetchone()[0]

    def fill(self, count):
        with self.queue.transaction():
            for _ in range(count):
                self.queue.put(PAYLOAD)

    def waiting(self):
        return self.queue.qsize()

    def put(self):
        self.queue.put(PAYLOAD)

    def cycle(self):
        self.queue.done(self.queue.pop().message_id)


PEERS = {"localqueue": LocalQueue, "litequeue": LiteQueue}


def serve(name, folder):
    peer = PEERS[name]
    wanted = f"pip install {name}=={peer.version}"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return say(f"skipped: {name} is not installed ({wanted})")
    if found != peer.version:
        return say(f"skipped: {name} is {found}, not {peer.version} ({wanted})")
    peer = peer(folder)
    # 2 is FULL: each commit is synced before it is answered.
    if peer.settings() != ("wal", 2):
        sys.exit(f"{name} runs with {peer.settings()}, not with a WAL and synchronous = FULL; nothing was measured")
    say("ready")
    filled = 0
    for line in sys.stdin:
        work, count = line.split()
        count = int(count)
        begun = time.perf_counter()
        if work == "fill":
            peer.fill(count)
            filled += count
            if peer.waiting() != filled:
                sys.exit(f"{name} holds {peer.waiting()}, not {filled}; nothing was measured")
        else:
            act = {"put": peer.put, "cycle": peer.cycle}[work]
            for _ in range(count):
                act()
        say(time.perf_counter() - begun)


def say(answer):
    print(answer, flush=True)


serve(*sys.argv[1:])
