"""What runs at a worker's address: which engine, in which version, configured how. Facts of one incarnation."""

from dataclasses import dataclass

from app.core.fleet.service import Service


@dataclass(frozen=True, slots=True)
class Engine:
    """As far as the worker lets itself be asked; what it does not say is empty or None, never guessed.

    name: "vllm", "sglang", "dynamo". version: what it answers at `/version`.
    revision: of the model's weights, a commit of its repository.
    spec_decode: whether it decodes speculatively.
    paths: those of the gateway's paths that it serves; empty when that could not be found out, and then it is sent
    whatever a client asks for.
    """

    name: str = ""
    version: str = ""
    revision: str = ""
    spec_decode: bool | None = None
    paths: frozenset[str] = frozenset()

    def serves(self, service: Service) -> bool:
        return not self.paths or not self.paths.isdisjoint(service.spellings)

    def path_of(self, service: Service) -> str:
        """The path to ask this engine at: the client's own where it is served, else one that means the same."""
        if not self.paths or service.path in self.paths:
            return service.path
        return next((path for path in service.spellings if path in self.paths), service.path)
