"""Which module is which tool: one line a tool, new ones at the end."""

TOOLS = {
    # "tool": "module",
}
