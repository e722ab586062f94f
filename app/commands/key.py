"""Make a key for a tenant.

  warmset key new --tenant acme
  warmset key new --tenant acme --name acme-ci --models 'llama-*' 'qwen*' --planes data admin

Prints the key, once and nowhere else, on standard output, and on standard error the entry for the keys file
(`warmset serve --api-keys-file FILE`), which holds only its digest. Give the key to the client; add the entry below
`keys:`. A running gateway takes it up within seconds. To rotate, add a second key of the tenant, move the clients, and
remove the first.
"""

import argparse

KEY_BYTES = 32
PREFIX = "sk-warmset-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    new = parser.add_subparsers(dest="action", required=True, metavar="ACTION").add_parser("new", help="make a key")
    new.add_argument("--tenant", required=True, help="whose requests it is for")
    new.add_argument("--name", help="what logs and status call it (default: the tenant and a part of the digest)")
    new.add_argument("--models", nargs="+", default=["*"], metavar="GLOB", help="models that it may use (default: all)")
    new.add_argument("--planes", nargs="+", default=["data"], choices=("data", "admin"), help="(default: data)")


def run(args: argparse.Namespace) -> int:
    import secrets
    import sys
    from hashlib import sha256

    import yaml

    from app.config.errors import ConfigError
    from app.config.keys_file import keys_of

    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    digest = sha256(key.encode()).hexdigest()
    entry = {"name": args.name or f"{args.tenant}-{digest[:8]}", "tenant": args.tenant, "sha256": digest}
    if args.models != ["*"]:
        entry["models"] = args.models
    if args.planes != ["data"]:
        entry["planes"] = args.planes
    try:
        keys_of({"keys": [entry]}, "")
    except ConfigError as error:
        for problem in error.problems:
            print(f"warmset key: {problem.where.removeprefix('keys.1.')}: {problem.what}", file=sys.stderr)
        return 2
    print(key, flush=True)
    text = yaml.safe_dump([entry], sort_keys=False, default_flow_style=False)
    print("\nThe key is above, and is not shown again. Add below `keys:` of the keys file:\n", file=sys.stderr)
    print("".join(f"  {line}\n" for line in text.splitlines()), file=sys.stderr)
    return 0
