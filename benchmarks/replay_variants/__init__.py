"""What makes SAC better: variants of it, of offbeat and of SBX, by env steps and CPU seconds to scores."""
