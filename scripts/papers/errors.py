class Failed(Exception):
    """What went wrong and how to mend it, with the exit code for it."""

    def __init__(self, text: str, code: int = 1):
        super().__init__(text)
        self.code = code
