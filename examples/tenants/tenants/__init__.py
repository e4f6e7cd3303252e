"""A web service for several customers, with an agent in LangGraph inside Antiphon."""
