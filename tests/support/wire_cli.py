"""A CLI in a few lines: asks a model on the Responses wire what to do, and does the tool calls that come back."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from mcp import Client

Json = dict[str, Any]
_SHELL = {
    "type": "function",
    "name": "exec_command",
    "parameters": {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}


@dataclass
class WireCli:
    """One session."""

    model: str
    """Root of the model's URL."""
    work: Path
    tools: Client
    headers: dict[str, str] = field(default_factory=dict)
    hook: Callable[[str], str] = lambda _: ""
    """From a command to what a hook says after it."""
    history: list[Json] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    async def turn(self, prompt: str) -> str:
        """Do one turn; return the last words."""
        self.history.append({"type": "message", "role": "user", "content": prompt})
        names = [tool.name for tool in (await self.tools.list_tools()).tools]
        group = {"type": "namespace", "name": "mcp__agensh", "tools": [{"name": name} for name in names]}
        async with httpx.AsyncClient(timeout=120, trust_env=False, headers=self.headers) as http:
            while True:
                body = {"model": "m", "input": self.history, "tools": [_SHELL, group]}
                answer = await http.post(f"{self.model}/v1/responses", json=body)
                answer.raise_for_status()
                item: Json = answer.json()["output"][-1]
                self.history.append(item)
                if item["type"] == "message":
                    return str(item["content"][0]["text"])
                await self._do(item)

    async def _do(self, item: Json) -> None:
        arguments = json.loads(item["arguments"])
        if item["name"] == "exec_command":
            output = f"Wall time: 0.1 seconds\nOutput:\n{await self._shell(arguments['cmd'])}"
            if said := self.hook(arguments["cmd"]):
                self.history.append({"type": "message", "role": "developer", "content": said})
        else:
            result = await self.tools.call_tool(item["name"], arguments)
            output = "\n".join(block.text for block in result.content if block.type == "text")
        self.history.append({"type": "function_call_output", "call_id": item["call_id"], "output": output})

    async def _shell(self, command: str) -> str:
        self.commands.append(command)
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.work), "GIT_CONFIG_NOSYSTEM": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        output, _ = await process.communicate()
        return output.decode("utf-8", "replace")
