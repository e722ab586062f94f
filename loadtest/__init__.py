"""Load tests of the gateway: what a request costs, measured on this machine beside what it costs without the gateway.

Everything runs on 127.0.0.1 and is bounded in requests and time. Nothing here is part of the installed package.
"""
