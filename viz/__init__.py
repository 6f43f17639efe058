"""How numbers look: figures, theme, words and the page shell. Nothing here computes what is shown."""
