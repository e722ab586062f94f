"""What the edges raise, and the shell catches. Flat: one name per thing that the shell treats differently."""


class StoreUnavailable(Exception):
    """The store did not do what was asked in the time that it has. Serving goes on; the caller tries again later."""
