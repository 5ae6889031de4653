"""``POST /v1/codes``: text to codes, one server-sent event per frame."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.engine.streams import Chunk, End, Pause, Source
from gateway.errors import RequestError
from gateway.http.errors import as_api_error
from gateway.http.replies import EVENT_STREAM, event
from gateway.http.response_stream import ResponseStream
from gateway.observe.timeline import Timeline
from gateway.services import GATEWAY
from gateway.speech import encoded_stream
from gateway.speech.http_reply import reply_headers
from gateway.speech.session import Session

routes = web.RouteTableDef()


@routes.post("/v1/codes")
async def codes(request: web.Request) -> web.StreamResponse:
    """Stream the codes. The status waits for the first frame; a later error is an event."""
    gateway = request.app[GATEWAY]
    wanted = await encoded_stream.read_request(request)
    with Session(gateway, request, "codes", "codes") as session:
        stream = await encoded_stream.start(gateway, session, wanted, "codes")
        item = await stream.next()
        if isinstance(item, End):
            encoded_stream.check_end(item)
        headers = reply_headers(gateway, wanted, gateway.model.sample_rate) | {"Content-Type": EVENT_STREAM}
        response = web.StreamResponse(headers=headers)
        stream_out = await ResponseStream.open(request, response, gateway.settings.slow_client_timeout)
        end = await _send_frames(stream_out, stream, item, session.timeline)
        session.reason = end.reason
        await stream_out.send(event(_ending(end)))
        await stream_out.finish(end.reason)
        return response


async def _send_frames(
    stream_out: ResponseStream, stream: Source, item: Chunk | Pause | End, timeline: Timeline
) -> End:
    while not isinstance(item, End):
        if isinstance(item, Chunk):
            rows = enumerate(item.data.tolist(), start=item.first)
            data = b"".join(event({"index": index, "codes": row}) for index, row in rows)
            timeline.chunk(item.frames, len(data), 0.0)
            await stream_out.send(data)
            timeline.sent()
        item = await stream.next()
    return item


def _ending(end: End) -> dict[str, Any]:
    ending: dict[str, Any] = {"finish_reason": end.reason, "frames": end.frames}
    try:
        encoded_stream.check_end(end)
    except RequestError as error:
        ending["error"] = as_api_error(error).error
    return ending
