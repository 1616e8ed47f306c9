"""The tools: audit, survey and plot."""
