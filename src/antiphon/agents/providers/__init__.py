"""What providers' HTTP APIs expect and answer: requests as bytes, streams as typed events, errors by kind."""
