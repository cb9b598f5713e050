//! The example engine beside candle: see `tests/`.
