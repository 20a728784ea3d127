"""Compare the beginnings of texts."""


def shared_lines(*texts: str) -> int:
    """Count the leading characters, by lines, that texts share, if more than blanks follows in each that goes on."""
    low, high = min(texts), max(texts)  # in sorted order, the first and the last share the least
    differs = _shared_length(low, high)
    # A prompt that ends with its inputs has no line end after them, and the next attempt adds lines.
    is_whole = {text[differs : differs + 1] for text in texts} == {"", "\n"}
    end = differs if is_whole else low.rfind("\n", 0, differs) + 1
    # Vendors cache a prompt by blocks, and refuse a block of blanks.
    bare = [(len(text.rstrip()), len(text)) for text in texts]
    while end and any(solid <= end < size for solid, size in bare):
        end = low.rfind("\n", 0, end - 1) + 1
    return end


def _shared_length(one: str, other: str) -> int:
    # By halves and not by characters, which would take longer than rendering a long prompt.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
