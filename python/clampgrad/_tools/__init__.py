"""The tools: audit, survey, plot. They are imported when they are asked for."""
