"""All keys below a prefix, as a stream of pages, by ListObjectsV2 of our own: several prefixes at once, any key.

How it goes: a prefix is listed flat. When its first page is not its last and shows only a few folders, each must be
large, so the folders are asked for instead (delimiter `/`), and listed beside each other in the same way. Many small
folders stay in one flat listing: a request for each would cost more than it saves.
What must hold: a key comes out once; the listing ends well only when each prefix gave its last page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from stoker.api.reasons import Reason
from stoker.sources.base import ObjectEntry, SourceError
from stoker.sources.retry import persistently
from stoker.sources.s3_page import Page, PageError, check_whole, parse_page, token_of
from stoker.sources.s3_requests import S3Requests

PARALLEL = 8  # requests at once
_QUEUED_PAGES = 2 * PARALLEL  # how far the stores may be ahead of who takes the entries
_FEW_FOLDERS = 10  # of the 1000 keys of a first page: then a folder holds about 100 keys or more

Query = dict[str, str | bytes]


async def list_prefix(requests: S3Requests, prefix: bytes, place: str) -> AsyncGenerator[list[ObjectEntry], None]:
    """Pages of entries in no promised order. Raises SourceError; what came before then is not the whole."""
    listing = _Listing(requests, place)
    whole = asyncio.ensure_future(listing.run(prefix))
    try:
        while (entries := await listing.pages.get()) is not None:
            yield entries
        await whole
    except ExceptionGroup as group:
        raise _first_of(group) from None
    finally:
        whole.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await whole


class _Listing:
    def __init__(self, requests: S3Requests, place: str) -> None:
        self._requests = requests
        self._place = place
        self._slots = asyncio.Semaphore(PARALLEL)
        self._group = asyncio.TaskGroup()
        self._folders = 0
        self.pages: asyncio.Queue[list[ObjectEntry] | None] = asyncio.Queue(_QUEUED_PAGES)

    async def run(self, prefix: bytes) -> None:
        """All of it into `pages`; None marks the end, good or bad."""
        try:
            async with self._group:
                await self._list(prefix)
        except Exception:
            await self.pages.put(None)
            raise
        await self.pages.put(None)

    async def _list(self, prefix: bytes) -> None:
        first = await self._body(_query(prefix), "")
        if token_of(first) and 0 < _folders_in(self._parsed(first, prefix), prefix) <= _FEW_FOLDERS:
            await self._list_folders(prefix)
        else:
            async for _ in self._follow(_query(prefix), prefix, first):
                pass

    async def _list_folders(self, prefix: bytes) -> None:
        query: Query = {**_query(prefix), "delimiter": "/"}
        known: set[bytes] = set()
        async for page in self._follow(query, prefix, await self._body(query, "")):
            for folder in page.prefixes:
                if folder not in known:
                    known.add(folder)
                    await self._list_folder(folder)

    async def _list_folder(self, folder: bytes) -> None:
        """Beside the others, or here and now when enough are on their way: so tasks are few, and none waits."""
        if self._folders >= PARALLEL:
            await self._list(folder)
            return
        self._folders += 1
        task = self._group.create_task(self._list(folder))
        task.add_done_callback(self._folder_done)

    def _folder_done(self, _: asyncio.Task[None]) -> None:
        self._folders -= 1

    async def _follow(self, query: Query, prefix: bytes, body: bytes) -> AsyncGenerator[Page, None]:
        """Each page from `body` on, its entries put out; tokens are followed over empty pages too."""
        tokens: set[int] = set()
        before: set[bytes] = set()
        while True:
            following = self._next(query, token_of(body), tokens)
            if following is not None:
                # Its request is sent before this page is read.
                await asyncio.sleep(0)
            page = self._parsed(body, prefix)
            keyed = {entry.key: entry for entry in page.entries}
            # Stores repeat keys where pages meet.
            if fresh := [entry for key, entry in keyed.items() if key not in before]:
                await self.pages.put(fresh)
            before = set(keyed)
            yield page
            if following is None:
                return
            body = await following

    def _next(self, query: Query, token: str, tokens: set[int]) -> asyncio.Task[bytes] | None:
        if not token:
            return None
        if hash(token) in tokens:
            raise self._corrupt("it names the same next page again and again")
        tokens.add(hash(token))
        return self._group.create_task(self._body(query, token))

    def _parsed(self, body: bytes, prefix: bytes) -> Page:
        try:
            page = parse_page(body)
        except PageError as error:
            raise self._corrupt(str(error)) from None
        if not all(entry.key.startswith(prefix) for entry in page.entries):
            raise self._corrupt("it holds keys that were not asked for")
        if not all(len(folder) > len(prefix) and folder.startswith(prefix) for folder in page.prefixes):
            raise self._corrupt("it holds prefixes that were not asked for")
        return page

    async def _body(self, query: Query, token: str) -> bytes:
        """One page that is whole, tried again while that can help. The request takes one of the slots."""
        asked: Query = {**query, "continuation-token": token} if token else query
        async with self._slots:
            return await persistently(lambda: self._once(asked), lambda: self._requests.answered, self._place)

    async def _once(self, query: Query) -> bytes:
        async with self._requests.request("GET", query=query, place=self._place) as response:
            body = await response.read()
        try:
            check_whole(body)
        except PageError as error:
            raise self._corrupt(str(error)) from None
        return body

    def _corrupt(self, what: str) -> SourceError:
        return SourceError(
            Reason.CorruptResponse, f"a page of the listing is wrong: {what}", place=self._place, retryable=True
        )


def _query(prefix: bytes) -> Query:
    return {"list-type": "2", "encoding-type": "url", "prefix": prefix}


def _folders_in(page: Page, prefix: bytes) -> int:
    """How many folders the keys of a page are in, directly below the prefix."""
    skip = len(prefix)
    return len({key[skip : key.find(b"/", skip)] for key in (e.key for e in page.entries) if key.find(b"/", skip) >= 0})


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The failure to report: of several folders that failed, the first."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
