"""What the MCP servers of Agensh share: tools as MCP lists them, results as MCP carries them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

import agensh
from router.tools.registry import Reply, Toolbox

OnCall = Callable[[ServerRequestContext[Any, Any], types.CallToolRequestParams], Awaitable[types.CallToolResult]]
OnList = Callable[[ServerRequestContext[Any, Any]], None]


def new_server(
    toolbox: Toolbox[Any], *, instructions: str, on_call: OnCall, on_list: OnList | None = None
) -> Server[Any]:
    """Return a low-level MCP server that lists the tools of `toolbox` and answers calls with `on_call`.

    `on_list` is told of each listing.
    """
    listed = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema(),
            annotations=types.ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=False),
        )
        for tool in toolbox.tools.values()
    ]

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if on_list is not None:
            on_list(context)
        return types.ListToolsResult(tools=listed)

    return Server(
        "agensh", version=agensh.__version__, instructions=instructions, on_list_tools=list_tools, on_call_tool=on_call
    )


def text_result(reply: Reply) -> dict[str, Any]:
    """Return a reply as a tools/call result: plain text only, which every harness shows."""
    return {"content": [{"type": "text", "text": reply.text}], "isError": reply.is_error}
