"""The gateway's settings, as an application key for code that has only the request."""

from __future__ import annotations

from aiohttp import web

from common.config import Gateway

SETTINGS: web.AppKey[Gateway] = web.AppKey("settings", Gateway)
