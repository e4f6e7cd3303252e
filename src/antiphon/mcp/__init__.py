"""The Model Context Protocol, both ways: tools of other servers for our agents, our tools for other agents."""
