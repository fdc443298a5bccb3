"""One queue from PyPI at work, for scripts/bench: peer.py NAME unlimited|limited FOLDER BACKLOG. With so much waiting it
obeys "put N" and "cycle N" on standard input, one a line, and answers each with the seconds it took."""

import importlib.metadata
import sys
import time

PAYLOAD = "sixty-four bytes of payload, which is neither long nor very short"
BATCH = 1000
# Nothing here runs into it, but it has to be looked at.
LIMIT = 10_000_000


class LocalQueue:
    version = "1.4.1"

    def __init__(self, folder, limit):
        from localqueue import DeliveryPolicy, DurabilityMode, SimpleQueue

        # No lease runs out while this runs.
        delivery = DeliveryPolicy(lease_seconds=86400)
        durable = DurabilityMode.DURABLE
        self.queue = SimpleQueue(folder, delivery=delivery, durability=durable, max_pending_jobs=limit)

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

    def close(self):
        self.queue.close()


class LiteQueue:
    version = "0.9"

    def __init__(self, folder, limit):
        from litequeue import LiteQueue

        self.queue = LiteQueue(f"{folder}/litequeue.db", maxsize=limit)
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

    def close(self):
        self.queue.conn.close()


PEERS = {"localqueue": LocalQueue, "litequeue": LiteQueue}
LIMITS = {"unlimited": None, "limited": LIMIT}


def serve(name, limit, folder, backlog):
    open_peer, backlog = PEERS[name], int(backlog)
    wanted = f"pip install {name}=={open_peer.version}"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return say(f"skipped: {name} is not installed ({wanted})")
    if found != open_peer.version:
        return say(f"skipped: {name} is {found}, not {open_peer.version} ({wanted})")
    # A limit would be looked at for each of them.
    filling = open_peer(folder, None)
    filling.fill(backlog)
    filling.close()
    peer = open_peer(folder, LIMITS[limit])
    if peer.waiting() != backlog:
        sys.exit(f"{name} holds {peer.waiting()}, not {backlog}; nothing was measured")
    # 2 is FULL: each commit is synced before it is answered.
    if peer.settings() != ("wal", 2):
        sys.exit(f"{name} runs with {peer.settings()}, not with a WAL and synchronous = FULL; nothing was measured")
    say("ready")
    for line in sys.stdin:
        work, count = line.split()
        act = {"put": peer.put, "cycle": peer.cycle}[work]
        begun = time.perf_counter()
        for _ in range(int(count)):
            act()
        say(time.perf_counter() - begun)


def say(answer):
    print(answer, flush=True)


serve(*sys.argv[1:])
