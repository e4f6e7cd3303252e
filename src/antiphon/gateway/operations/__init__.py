"""Every operation of the gateway, once. HTTP, its description and the tests derive from these. Contract: access 5."""
