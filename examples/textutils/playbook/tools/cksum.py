"""cksum: the POSIX checksum and the size of each input."""

import cli

POLYNOMIAL = 0x04C11DB7


def run(argv):
    _, names = cli.options(argv, "")
    table = [entry(byte) for byte in range(256)]
    inputs = cli.Inputs("cksum", names)
    for name, data in inputs:
        label = f" {name}" if names else ""
        cli.out(cli.encode(f"{checksum(data, table)} {len(data)}{label}\n"))
    return inputs.code


def entry(byte):
    value = byte << 24
    for _ in range(8):
        value = (value << 1) ^ (POLYNOMIAL if value & 0x80000000 else 0)
        value &= 0xFFFFFFFF
    return value


def checksum(data, table):
    """Return the CRC over the data and then over its length, low byte first, without leading zeros."""
    value, length = 0, len(data)
    tail = length.to_bytes((length.bit_length() + 7) // 8, "little")
    for byte in data + tail:
        value = (value << 8 & 0xFFFFFFFF) ^ table[value >> 24 ^ byte]
    return value ^ 0xFFFFFFFF
