#!/usr/bin/env python3
"""A Leasehold client over etcd's JSON face, written from docs/protocol.md alone. Python's own library is all it needs.

    client.py ENDPOINT NAME [lock|try|recipe]

Takes the lock, says "held REVISION KEY", holds it until a line or the end comes on standard input, releases, and says
"released". `try` does not wait: it says "busy KEY" instead. `recipe` makes the keys and values that Go's package makes.
"""
import base64
import json
import os
import random
import socket
import sys
import threading
import time
import urllib.request

ENDPOINT, NAME, MODE = (sys.argv[1:] + ["lock"])[:3]
TTL, FIRST, PAST = 10, NAME + "/", NAME + "0"


def text(value):
    return base64.b64encode(value.encode()).decode()


def post(path, *bodies, timeout=5):
    body = "".join(map(json.dumps, bodies)).encode()
    return urllib.request.urlopen(urllib.request.Request(ENDPOINT + path, body), timeout=timeout)


def call(path, **body):
    return json.load(post(path, body))


def rank(kv):
    return int(kv["create_revision"])


def txn(compare, then, otherwise=()):
    answer = call("/v3/kv/txn", compare=compare, success=then, failure=list(otherwise))
    shown = [part["response_range"] for part in answer["responses"] if "response_range" in part]
    return answer.get("succeeded", False), shown, int(answer["header"]["revision"])


def read(key, **more):
    return {"request_range": {"key": text(key), **more}}


def queue(order, **more):
    return read(FIRST, range_end=text(PAST), sort_target="CREATE", sort_order=order, **more)


def created(key, at, **more):
    return {"key": text(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(at), **more}


def ours(shown):
    """What of a range is of this queue: those with a further slash are other locks'."""
    return [kv for kv in shown.get("kvs", []) if b"/" not in base64.b64decode(kv["key"])[len(FIRST.encode()):]]


class Lease:
    """Renewed by a thread; valid by the clock, counted from when the renewal was sent."""

    def __init__(self):
        self.id, sent = random.randrange(1, 2**63), self.now()
        self.ttl = int(call("/v3/lease/grant", TTL=str(TTL), ID=str(self.id))["TTL"])
        self.valid_until = sent + self.ttl - max(self.ttl / 10, 0.5)
        threading.Thread(target=self.renew, daemon=True).start()

    def now(self):
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def renew(self):
        while self.now() < self.valid_until:
            time.sleep(self.ttl / 3)
            sent = self.now()
            kept = call("/v3/lease/keepalive", ID=str(self.id))["result"]
            seen = call("/v3/kv/range", key=text(FIRST))["header"]
            same = seen["cluster_id"] == kept["header"]["cluster_id"]
            counts = same and int(seen["raft_term"]) <= int(kept["header"]["raft_term"])
            if counts and int(kept.get("TTL", 0)) > 0 and self.now() < self.valid_until:
                ttl = min(self.ttl, int(kept["TTL"]))
                self.valid_until = sent + ttl - max(ttl / 10, 0.5)

    def ensure(self):
        if self.now() >= self.valid_until:
            sys.exit("lost: the lease is not known to be renewed")


def look(key, created_at):
    """The entry to wait behind, or None if the lock is held; and the revision at which that was so."""
    newest, limit = created_at - 1, 16
    while True:
        before = queue("DESCEND", max_create_revision=str(newest), limit=str(limit))
        _, (own, before), seen = txn([], [read(key), before])
        if not own.get("kvs") or rank(own["kvs"][0]) != created_at:
            sys.exit("lost: the entry is gone")
        if ours(before) or not before.get("more"):
            return (ours(before) or [None])[0], seen
        newest, limit = rank(before["kvs"][-1]), limit * 2


def wait(lease, key, ahead, seen):
    """Until a new look is due."""
    watches = [{"create_request": {"key": k, "filters": ["NOPUT"]}} for k in (text(key), ahead["key"])]
    standing = 0
    try:
        for line in post("/v3/watch", *watches, timeout=lease.ttl / 2):
            told = json.loads(line)["result"]
            standing += told.get("created", False)
            if told.get("events") or standing == 2 and int(told["header"]["revision"]) > seen:
                return
    except OSError:
        pass  # silence


def take(lease):
    """Key, rank and the revision of the proof; or None if a try found the lock busy."""
    who = {"host": socket.gethostname(), "pid": os.getpid(), "program": "client.py", "since": int(time.time() * 1000)}
    key, value = f"{FIRST}{lease.id:x}-{random.randrange(1 << 16):x}", json.dumps(who)
    if MODE == "recipe":
        key, value = f"{FIRST}{lease.id:x}", ""
    put = {"request_put": {"key": text(key), "value": text(value), "lease": str(lease.id)}}
    if MODE == "try":
        nobody = created(FIRST, 0, range_end=text(PAST))
        free, shown, seen = txn([nobody], [put], [read(key), queue("ASCEND", limit="16")])
        if not free:
            print("busy", base64.b64decode(ours(shown[1])[0]["key"]).decode(), flush=True)
        return (key, seen, seen) if free else None
    entered, shown, seen = txn([created(key, 0)], [queue("DESCEND", limit="1"), put], [read(key)])
    created_at = seen if entered else rank(shown[0]["kvs"][0])
    if entered and not shown[0].get("kvs"):
        return key, created_at, seen
    while True:
        ahead, seen = look(key, created_at)
        if ahead is None:
            return key, created_at, seen
        lease.ensure()
        wait(lease, key, ahead, seen)


mine = Lease()
held = take(mine)
if held:
    print("held", held[2], held[0], flush=True)
    sys.stdin.readline()
    mine.ensure()
    txn([created(held[0], held[1])], [{"request_delete_range": {"key": text(held[0])}}])
call("/v3/lease/revoke", ID=str(mine.id))
print("released", flush=True)
