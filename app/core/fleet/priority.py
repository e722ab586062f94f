"""How much a request matters, beside others that wait for the same workers."""

from enum import IntEnum


class Priority(IntEnum):
    """Classes as in Google's SRE book (critical plus, critical, sheddable plus, sheddable), under plainer names."""

    LOW = 1
    """Work that somebody looks at tomorrow."""
    NORMAL = 2
    HIGH = 3
    CRITICAL = 4
    """Where a person is waiting and nobody else can help."""

    @property
    def label(self) -> str:
        return self.name.lower()


BY_LABEL = {priority.label: priority for priority in Priority}
