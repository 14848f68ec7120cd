"""Units: the names of everything that is metered and priced, each token in exactly one of them."""

UNITS: dict[str, str] = {
    "input": "input tokens (text), neither from a cache nor written to one",
    "input_cached": "input tokens read from a cache",
    "input_cache_write": "input tokens written to a cache, kept 5 minutes or unstated",
    "input_cache_write_1h": "input tokens written to a cache, kept 1 hour",
    "input_audio": "audio input tokens",
    "input_cached_audio": "audio input tokens read from a cache",
    "input_image": "image and document input tokens",
    "input_cached_image": "image and document input tokens read from a cache",
    "input_video": "video input tokens",
    "input_cached_video": "video input tokens read from a cache",
    "output": "output tokens (text), without reasoning",
    "output_reasoning": "output tokens of reasoning or thoughts",
    "output_audio": "audio output tokens",
    "output_image": "image output tokens",
    "output_video": "video output tokens",
    "output_citation": "output tokens of citations",
    "web_search_requests": "web searches by the provider",
    "code_execution_requests": "code executions by the provider",
    "other_tool_requests": "other tool uses by the provider",
    "requests": "the request itself, where a price asks a fee for it",
}

# A published input rate covers text, image and video, a published output rate covers reasoning,
# unless they are listed apart. Nothing else is covered: audio, cached or written tokens and
# searches need their own rate (A12).
COVERED_BY: dict[str, str] = {
    "input_image": "input",
    "input_video": "input",
    "input_cached_image": "input_cached",
    "input_cached_video": "input_cached",
    "output_reasoning": "output",
}


def is_token(unit: str) -> bool:
    """Whether the unit counts tokens; the others count uses."""
    return unit.startswith(("input", "output"))
