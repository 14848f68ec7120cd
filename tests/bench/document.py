"""docs/benchmarks.md: a head and one section per part; a new measurement replaces its section."""

PARTS = (
    "gateway",
    "streams",
    "settlement",
    "pages",
    "decisions",
    "approvals",
    "claims",
    "workers",
    "delivery",
    "letters",
    "start",
)
COMPARISON = "before and after"
ORDER = (COMPARISON, *PARTS)
HEAD = """# Benchmarks

Written by `make bench`. Each section is one run: everything compared in it was measured side by
side, so its ratios mean more than its figures. The load generator, the provider, the product and
the database share the machine.

- Machine: {machine}
- Database: {server}, `innodb_flush_log_at_trx_commit=1`
"""


def head(*, machine: str, server: str) -> str:
    """What stands above the sections."""
    return HEAD.format(machine=machine, server=server)


def replaced(old: str, head: str, name: str, section: str) -> str:
    """The document with this section in its place; the other sections of `old` stay."""
    kept = {_name(text): text for text in old.split("\n## ")[1:]}
    kept[name] = section.removeprefix("## ")
    texts = [f"## {kept[part].strip()}\n" for part in ORDER if part in kept]
    return "\n".join([head, *texts])


def _name(section: str) -> str:
    return section.split("\n", 1)[0].strip().lower()
