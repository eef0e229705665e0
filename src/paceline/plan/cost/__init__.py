"""The cost model: time, memory and energy of many layouts at once."""
