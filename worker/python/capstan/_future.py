"""The result of a push or a pull."""

import concurrent.futures
from typing import Any, Generator, TypeVar

Result = TypeVar("Result")


class Future(concurrent.futures.Future[Result]):
    """A concurrent.futures.Future that coroutines may also await."""

    def __await__(self) -> Generator[Any, None, Result]:
        if not self.done():
            import asyncio  # Takes long, and few need it.
            yield from asyncio.wrap_future(self).__await__()
        return self.result()


def done(result: Result) -> Future[Result]:
    """A future that has its result."""
    future: Future[Result] = Future()
    future.set_result(result)
    return future
