"""Operations of people and programs on sessions."""
