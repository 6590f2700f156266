"""Vulkan: devices, memory that other processes can have, images that become rows of bytes."""
