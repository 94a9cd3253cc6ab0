// Does a worker's REST calls with Mattermost's own client and prints the results as one JSON object.
// Arguments: address, login, channel id, id of a peer. The password comes in the environment variable CHAT_PASSWORD.
'use strict';

const {Client4} = require('@mattermost/client');

async function main() {
    const [url, login, channelId, peerId] = process.argv.slice(2);
    const client = new Client4();
    client.setUrl(url);
    const me = await client.login(login, process.env.CHAT_PASSWORD);
    const post = await client.createPost({channel_id: channelId, message: 'from JavaScript', pending_post_id: `${me.id}:js`});
    const again = await client.createPost({channel_id: channelId, message: 'again', pending_post_id: `${me.id}:js`});
    const direct = await client.createDirectChannel([me.id, peerId]);
    const edited = await client.patchPost({id: post.id, message: 'edited'});
    const listing = await client.getPostsAfter(channelId, post.id, 0, 200);
    const teams = await client.getMyTeams();
    let refusal = null;
    try {
        await client.getChannel('z'.repeat(26));
    } catch (error) {
        refusal = {status: error.status_code, id: error.server_error_id};
    }
    process.stdout.write(JSON.stringify({
        me,
        post,
        again,
        direct,
        edited,
        listing,
        teams,
        refusal,
        version: client.getServerVersion(),
        config: await client.getClientConfig(),
        users: await client.getProfilesInChannel(channelId, 0, 200),
        preferences: await client.getMyPreferences(),
        bot: await client.getBot(peerId),
    }));
}

main().then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
});
