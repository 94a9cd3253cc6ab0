"""tsort: topological order of pairs."""

import cli


def run(argv):
    _, names = cli.options(argv, "")
    if len(names) > 1:
        raise cli.Failure(f"extra operand '{names[1]}'")
    words = cli.load(names[0] if names else "-").split()
    if len(words) % 2:
        raise cli.Failure("input contains an odd number of tokens")
    followers, waiting = {}, {}
    for before, after in zip(words[::2], words[1::2]):
        for node in (before, after):
            followers.setdefault(node, [])
            waiting.setdefault(node, 0)
        if before != after:
            followers[before].append(after)
            waiting[after] += 1
    # Free nodes in the order of their names, then each in the order in which it becomes free; the latest pair first.
    queue = [node for node in sorted(waiting) if not waiting[node]]
    for node in queue:
        cli.out(node + b"\n")
        for after in reversed(followers[node]):
            waiting[after] -= 1
            if not waiting[after]:
                queue.append(after)
    if len(queue) < len(waiting):
        raise cli.Failure("input contains a loop")
    return 0
