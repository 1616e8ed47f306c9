"""What the installed torch does at kinks and ties, measured, beside what PyTorch documents.

measured    the functions and points, what is measured there, and the hulls of gradients
rows        what was found, and how it is shown
"""

from clampgrad._tools.survey.measured import survey
from clampgrad._tools.survey.rows import Row, Survey, as_data, as_markdown

__all__ = ["Row", "Survey", "as_data", "as_markdown", "survey"]
