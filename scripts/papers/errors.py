class Failed(Exception):
    """A failure with a message on its cause and how to fix it, and an exit code."""

    def __init__(self, text: str, code: int = 1):
        super().__init__(text)
        self.code = code
