# stand-in by main until the fetch helper's files land: overwrite
"""x"""
from __future__ import annotations
import asyncio, json, os, contextlib
from stoker.api.errors import StokerError
from stoker.cache.credit import Credit, Grant
from stoker.cache.layout import object_id, page_count, page_span, PAGE
from stoker.cache.presence import PresenceTable
from stoker.cache.writer import CacheWriter
from stoker.fetch.counters import Counter, Counters
from stoker.fetch.protocol import *
from stoker.fetch.session import SessionSpec
from stoker.ipc.channel import AsyncChannel
from stoker.manifest.manifest import Manifest
from stoker.sources import open_source

class F:
    async def main(self, index, config, fds):
        self.counters = Counters(fds["counters"]); self.sessions = {}; self.sources = {}; self.locks = {}; self.grants = {}; self.n = 0
        while True:
            try: self.ch = await AsyncChannel.connect(config["run_dir"] + "/control.sock"); break
            except OSError: await asyncio.sleep(.01)
        self.ch.send({"op": "hello", "role": "fetcher", "index": index, "pid": os.getpid(), "credit": []})
        w, _ = await self.ch.recv()
        table = PresenceTable(fds["presence"]); table.clear()
        self.writer = CacheWriter(w["tiers"], table, bytes.fromhex(w["boot"]), Credit(len(w["tiers"]), self.ask))
        for s in w["sessions"]: self.add(s)
        path = f"{config['run_dir']}/fetch-{index}.sock"
        with contextlib.suppress(FileNotFoundError): os.unlink(path)
        await asyncio.start_unix_server(self.serve, path)
        asyncio.ensure_future(self.collect())
        while True:
            m, _ = await self.ch.recv()
            if m["op"] == "session": self.add(m["spec"])
            elif m["op"] == "granted": self.grants.pop(m["seq"]).set_result(Grant(m["bytes"], m["inodes"], *m["incarnations"]))
            elif m["op"] == "evict?": self.ch.send({"op": "busy", "seq": m["seq"], "oids": [o.hex() for o in self.writer.doom(map(bytes.fromhex, m["oids"]))]})
            elif m["op"] == "evicted": self.writer.evicted(map(bytes.fromhex, m["oids"]))
    async def collect(self):
        while True: await asyncio.sleep(.3); self.writer.collect()
    async def ask(self, tier, b, i):
        self.n += 1; f = self.grants[self.n] = asyncio.get_running_loop().create_future()
        self.ch.send({"op": "credit", "seq": self.n, "tier": tier, "bytes": b, "inodes": i}); return await f
    def add(self, s):
        spec = SessionSpec.from_json(s); self.sessions[spec.slot] = (spec, Manifest.open(spec.manifest_path), [open_source(x) for x in spec.sources])
    async def serve(self, r, w):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                f = REQUEST.unpack(await r.readexactly(REQUEST.size))
                asyncio.ensure_future(self.one(f, w))
    async def one(self, f, w):
        i, kind, flags, slot, length, inode, offset = f
        if kind >= 3: return
        try:
            inc, data = await self.get(kind, flags, slot, inode, offset, length)
            w.write(REPLY.pack(i, 1 if data is not None else 0, 0, 0, len(data or b""), inc) + (data or b""))
        except StokerError as e:
            d = json.dumps(e.to_json()).encode(); w.write(REPLY.pack(i, 2, 0, 0, len(d), 0) + d)
        except BaseException as e:
            import traceback; traceback.print_exc()
            d = json.dumps({"reason": "Internal", "message": repr(e)}).encode(); w.write(REPLY.pack(i, 2, 0, 0, len(d), 0) + d)
    async def get(self, kind, flags, slot, inode, offset, length):
        spec, man, srcs = self.sessions[slot]
        ref = man.object(inode); v = ref.version; src = srcs[ref.source]
        if kind == 2: offset, length = 0, v.size
        length = min(length, v.size - offset)
        async def read(a, b):
            out = bytearray()
            async for p in src.read(v, a, b): out += p
            self.counters.add(slot, Counter.SOURCE_BYTES, b - a)
            return out
        oid = object_id(man.sources[ref.source].origin, v.key, v.etag, v.size)
        fill = None if flags & 2 or not v.etag or spec.mount.policy == "Bypass" else self.writer.begin(oid, v.size, spec.data_set)
        if fill is None: return 0, bytes(await read(offset, offset + length))
        lock = self.locks.setdefault(oid, asyncio.Lock())
        try:
            async with lock:
                first, last = page_span(offset, length, v.size)
                if flags & 1: fill.drop(first, last)
                for a, b in fill.missing(first, last):
                    while a < b:
                        c = min(b, a + 256)
                        if not await fill.reserve(a, c): return 0, bytes(await read(offset, offset + length)) if kind == 1 else None
                        data = await read(a * PAGE, min(c * PAGE, v.size))
                        fill.write(a, memoryview(data)); a = c
                return fill.incarnation or 0, None
        finally: fill.close()

def run(index, config, fds):
    asyncio.run(F().main(index, config, fds))
