"""Every operation of the gateway, once: HTTP, its description and the tests are made of these. Contract: access 5."""
