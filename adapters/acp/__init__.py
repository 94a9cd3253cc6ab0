"""Any agent that speaks the Agent Client Protocol (agentclientprotocol.com), over its standard input and output."""
