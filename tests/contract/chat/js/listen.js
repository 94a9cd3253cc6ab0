// Listens with Mattermost's own websocket client and prints what it hears, one JSON object a line.
// Arguments: the server's address. The token comes in the environment variable CHAT_TOKEN.
'use strict';

const {WebSocketClient} = require('@mattermost/client');
const WebSocket = require('ws');

console.log = console.error; // stdout carries the lines, nothing else
globalThis.WebSocket = WebSocket;

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const url = process.argv[2].replace(/^http/, 'ws') + '/api/v4/websocket';

// The browser's client sends its session cookie on the upgrade; a bearer header authenticates it in the same way.
const client = new WebSocketClient({
    newWebSocketFn: (address) => new WebSocket(address, {
        headers: {Authorization: `Bearer ${process.env.CHAT_TOKEN}`},
    }),
    minWebSocketRetryTime: 100,
    reconnectJitterRange: 50,
    maxWebSocketFails: 1000,
    clientPingInterval: 2000,
});
client.addMessageListener((message) => say({kind: 'event', message}));
client.addFirstConnectListener(() => say({kind: 'connected'}));
client.addReconnectListener(() => say({kind: 'reconnected'}));
client.addMissedMessageListener(() => say({kind: 'missed'}));
client.addCloseListener((failures) => say({kind: 'closed', failures}));
client.initialize(url);

process.stdin.resume();
process.stdin.on('end', () => {
    client.close();
    process.exit(0);
});
