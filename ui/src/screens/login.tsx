import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { logIn } from "../api";

export function LoginScreen(): JSX.Element {
  const [key, setKey] = useState("");
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  return (
    <main class="login">
      <form class="card" onSubmit={(event) => {
        event.preventDefault();
        setBusy(true);
        logIn(key.trim()).catch((error: Error) => setWrong(error.message)).finally(() => { setBusy(false); setKey(""); });
      }}>
        <h1>Hawser</h1>
        <p>This server asks for a key. It becomes a session of twelve hours in this browser, and the key itself is not kept.</p>
        <label>API key, or the token that the server printed <input type="password" autocomplete="current-password" required value={key} onInput={(event) => setKey(event.currentTarget.value)} /></label>
        {wrong && <p class="wrong" role="alert">{wrong}</p>}
        <button type="submit" class="primary" disabled={busy}>Log in</button>
        <p class="muted">Make a key: <code>hawser keys create NAME --role viewer</code>. With the role operator it may also act. Behind a proxy the server cannot know its own user, so it always asks.</p>
      </form>
    </main>
  );
}
