"""What the edges raise, and the shell catches. Flat: one name per thing that the shell treats differently."""


class StoreUnavailable(Exception):
    """The store did not do what was asked in the time that it has. Serving goes on; the caller tries again later."""


class DestinationRefused(Exception):
    """A worker may not be where its URL leads. The text says why, and what is allowed."""


class NameUnknown(Exception):
    """A worker's host name could not be looked up: it is unknown, or nobody answered in time."""
