"""Pictures: one colour per policy, charts as small PNG files and as text in a terminal."""
